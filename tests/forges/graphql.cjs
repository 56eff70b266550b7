// Validates GraphQL exchanges against GitHub's schema: the document, its variables, and the answer by executing it.
const { readFileSync } = require("node:fs");
const { buildSchema, graphqlSync, parse, validate } = require("graphql");

const schema = buildSchema(readFileSync(`${process.env.NODE_PATH}/@octokit/graphql-schema/schema.graphql`, "utf8"), {
  assumeValidSDL: true, // it has fields twice
});
const talked = JSON.parse(readFileSync(process.argv[2], "utf8"));
const said = talked.map(({ body, answer }) => {
  const wrong = validate(schema, parse(body.query)).map(String);
  if (wrong.length) return wrong;
  const data = answer.data;
  const typed = data.node ? { ...data, node: { __typename: "PullRequest", ...data.node } } : data;
  const result = graphqlSync({ schema, source: body.query, rootValue: typed, variableValues: body.variables });
  if (result.errors) return result.errors.map(String);
  return JSON.stringify(result.data) === JSON.stringify(data) ? [] : [`${JSON.stringify(result.data)} is not the answer`];
});
console.log(JSON.stringify(said));
