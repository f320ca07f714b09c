"""The parties that run: each is an app made by a function, from one settings file."""
