"""Plan and run the checks of base commits, packages and phases; detect the projects in a tree."""
