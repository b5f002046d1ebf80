"""Names of measures: labels and their grammar, other libraries' spellings, presets, checks of arguments."""
