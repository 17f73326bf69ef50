"""The settings of each component, one module for each; `settings.models` puts them together."""
