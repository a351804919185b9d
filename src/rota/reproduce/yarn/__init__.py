"""YARN-CS: recipes of the Philly study."""
