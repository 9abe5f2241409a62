"""What people and CI read: diagnostics with their source line, the report of a conversion, the labelled diff."""
