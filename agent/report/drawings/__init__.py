"""The pictures of a report, each drawn for the width it is given."""
