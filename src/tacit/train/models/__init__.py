"""What is trained: models in two towers, public and sensitive, that can do without the sensitive one."""
