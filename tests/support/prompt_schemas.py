"""The published JSON Schemas of prompt and template metadata, verbatim."""

from __future__ import annotations

import json

UNIFIED_PROMPT = json.loads("""
{
  "type": "object",
  "required": [
    "instructions"
  ],
  "properties": {
    "system_prompt": {
      "type": "string"
    },
    "context": {
      "type": "array",
      "items": {
        "type": "object",
        "properties": {
          "type": {
            "type": "string",
            "enum": [
              "file",
              "artifact",
              "thought"
            ]
          },
          "name": {
            "type": "string"
          },
          "content": {
            "type": "string"
          }
        }
      }
    },
    "instructions": {
      "type": "string"
    }
  }
}
""")

SYSTEM_TEMPLATE_METADATA = json.loads("""
{
  "$schema": "http://json-schema.org/draft-07/schema#",
  "type": "object",
  "title": "SystemTemplateMetadata",
  "required": ["agent", "phase", "variables"],
  "properties": {
    "agent": {
      "type": "string",
      "enum": ["GEMINI", "CLAUDE", "CODEX", "BASE"]
    },
    "phase": {
      "type": "string",
      "enum": ["plan", "challenge", "implement", "review", "archive"]
    },
    "variables": {
      "type": "array",
      "items": {
        "type": "string"
      },
      "description": "List of variables detected/required in the template"
    }
  }
}
""")
