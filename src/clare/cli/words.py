"""What several commands say alike: the groups of the help, and what `--backbone` takes."""

OWN = "Your own pictures"
EXPERIMENTS = "Experiments"
PAPER = "The paper"
MACHINE = "This machine"

BACKBONE = "a name (see `clare presets`), a timm name, a weights file, or the path of a TOML file"
