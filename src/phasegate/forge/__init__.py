"""Pull requests on GitHub, GitLab and Gitea: one module per forge behind `port.Forge`."""
