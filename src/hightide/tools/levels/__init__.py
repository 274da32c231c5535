"""What varies in a program, and how its parts come by their inputs: what every tool asks of a file."""
