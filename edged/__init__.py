"""edged: a board's abilities as tools for agents and programs."""

__version__ = "0.1.0"
