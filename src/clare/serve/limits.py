"""What a request may ask for, and the refusal of what goes beyond it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import Field

from clare.errors import ClareError
from clare.settings import Settings

MIB = 1 << 20


class Limits(Settings):
    """Bounds that keep one request, or many at once, from taking the machine down."""

    image_bytes: int = Field(20 * MIB, ge=1, description="Bytes of one image file.")
    image_pixels: int = Field(50_000_000, ge=1, description="Pixels of one image, read from its header.")
    image_seconds: float = Field(10, gt=0, description="Time for decoding one image.")
    predict_images: int = Field(64, ge=1, le=4096, description="Images in one request for predictions.")
    predict_bytes: int = Field(64 * MIB, ge=1, description="Bytes of one request for predictions.")
    predict_pixels: int = Field(250_000_000, ge=1, description="Pixels of all images of a request for predictions.")
    memory_bytes: int = Field(256 * MIB, ge=1, description="Bytes of all requests for predictions under way.")
    waiting_images: int = Field(
        1024, ge=1, description="Images that may wait to be decoded, and as many for their prediction."
    )
    batch_images: int = Field(32, ge=1, le=4096, description="Images that are predicted together at most.")
    batch_seconds: float = Field(0.003, ge=0, le=1, description="How long a first image waits for company.")
    learn_images: int = Field(5000, ge=1, description="Images in one request to learn.")
    learn_classes: int = Field(500, ge=1, description="Classes in one request to learn.")
    learn_pixels: int = Field(10_000_000_000, ge=1, description="Pixels of all images of a request to learn.")
    learn_bytes: int = Field(512 * MIB, ge=1, description="Bytes of one request to learn.")
    unpacked_bytes: int = Field(1024 * MIB, ge=1, description="Bytes of an archive's files once unpacked.")
    unpacked_ratio: int = Field(100, ge=1, description="How many times as large an archive may become.")
    waiting_jobs: int = Field(2, ge=0, le=1000, description="Jobs that may wait while one is learning.")
    request_seconds: float = Field(30, gt=0, description="Time for one request.")
    upload_seconds: float = Field(600, gt=0, description="Time for one request to learn, until its job is accepted.")


class Refusal(ClareError):
    """A request that is not served: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


class Budget:
    """An amount that requests share while they are under way."""

    def __init__(self, total: int, sentence: str) -> None:
        self.free = total
        self.sentence = sentence

    @contextmanager
    def taken(self, amount: int, retry_after: int = 1) -> Iterator[None]:
        """Hold a part of the amount, or refuse when there is not enough left."""
        with self.growing(retry_after) as take:
            take(amount)
            yield

    @contextmanager
    def growing(self, retry_after: int = 1) -> Iterator[Callable[[int], None]]:
        """Give a function that takes a further part of the amount, or refuses; all of it is held until the end."""
        held = 0

        def take(amount: int) -> None:
            nonlocal held
            if amount > self.free:
                raise Refusal(429, self.sentence, retry_after)
            self.free -= amount
            held += amount

        try:
            yield take
        finally:
            self.free += held
