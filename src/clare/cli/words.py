"""What several commands say alike: the groups of the help, what pictures are, and what `--backbone` takes."""

OWN = "Your own pictures"
EXPERIMENTS = "Experiments"
PAPER = "The paper"
MACHINE = "This machine"

PICTURES = "a folder per class, CSV or Parquet, tars, a zip, a data set of Hugging Face on disk or hf:NAME"
BACKBONE = "a name (see `clare presets`), a timm name, a weights file, or the path of a TOML file"
