"""What `import sottovoce` offers, one module a task, and what the command line shares with it."""
