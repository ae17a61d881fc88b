"""An experiment as settings: everything a run depends on, besides the data itself."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from clare.backbones.settings import BackboneSettings
from clare.data.settings import DataSettings, StreamSettings, TransformSettings
from clare.engine.settings import EngineSettings
from clare.errors import ClareError
from clare.identity import head_label, identity
from clare.settings import Settings, build_settings
from clare.upgrade import upgraded_experiment

if TYPE_CHECKING:
    from clare.methods.base import HeadOnlySettings


class Setup(Settings):
    """Everything but the method, so that it can be read without any method's code."""

    name: str = Field(description="The preset's name.")
    description: str = Field("", description="One line for `clare presets`.")
    seed: int = Field(1993, ge=0, lt=2**32, description="Seed of the class order and of every random draw.")
    data: DataSettings = Field(description="Which images.")
    stream: StreamSettings = Field(description="How classes become tasks.")
    transforms: TransformSettings = Field(TransformSettings(), description="Augmentation and normalisation.")
    backbone: BackboneSettings = Field(BackboneSettings(), description="The frozen vision transformer.")
    engine: EngineSettings = Field(EngineSettings(), description="Device, precision and evaluation.")


class Experiment(Setup):
    """A preset with a method chosen and every setting resolved."""

    method: dict[str, Any] = Field(description="The method's name and all of its settings.")
    overrides: list[str] = Field([], description="The --set arguments this experiment was made with.")

    @property
    def method_name(self) -> str:
        """The name of the method as the user gave it, which may be a file and a class."""
        return str(self.method["name"])

    @property
    def method_label(self) -> str:
        """The name that the method gives itself, fit for folders and tables."""
        from clare.methods import METHODS

        return METHODS.get(self.method_name).name

    def identity(self) -> dict[str, Any]:
        """Return the settings on which the run depends: experiments that agree in them are the same run."""
        return identity(self.model_dump(mode="json"))

    @property
    def head_label(self) -> str:
        """The name of the method's head, which the record of a run tells too."""
        return head_label(self.model_dump(mode="json"))

    def method_settings(self) -> "HeadOnlySettings":
        """Return the method's settings in their own type."""
        from clare.methods import METHODS

        values = {key: value for key, value in self.method.items() if key != "name"}
        return build_settings(METHODS.get(self.method_name).settings_type, values, "method")


@dataclass(frozen=True)
class Job:
    """A run that is to be made, and how the user would ask for it alone."""

    label: str
    preset: str
    experiment: Experiment
    folder: Path

    @property
    def command(self) -> list[str]:
        """The command line of this run in a process of its own."""
        experiment = self.experiment
        words = ["train", self.preset, "--one-of-many", "--method", experiment.method_name]
        words += ["--seed", str(experiment.seed)]
        words += [word for override in experiment.overrides for word in ("--set", override)]
        return [sys.executable, "-m", "clare", *words, "--out", str(self.folder)]

    @property
    def is_done(self) -> bool:
        """Whether the run has come to its end; a folder with another run is refused."""
        from clare.engine.folder import RunFolder

        run = RunFolder(self.folder, writes=False)
        run.inspect(self.experiment.model_dump(mode="json"))
        return run.has_ended


def completed(saved: dict[str, Any]) -> dict[str, Any]:
    """Return a saved experiment under today's names, later settings at their defaults; what is none stays as it is."""
    try:
        experiment = build_settings(Experiment, upgraded_experiment(saved), "")
        settings = experiment.method_settings()
    except (ClareError, KeyError):
        return saved
    method = {"name": experiment.method_name, **settings.model_dump(mode="json")}
    return experiment.model_copy(update={"method": method}).model_dump(mode="json")
