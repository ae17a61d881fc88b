"""The routes of the service."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.staticfiles import StaticFiles

from clare.errors import ClareError, DataError
from clare.model.records import Mode
from clare.serve.guards import SiteGuard, TimeLimit, check_token
from clare.serve.limits import Refusal
from clare.serve.schemas import (
    LEARN_FORM,
    PREDICT_FORM,
    Accepted,
    Health,
    JobAnswer,
    ModelAnswer,
    Prediction,
    Problem,
    Undone,
)
from clare.serve.service import Options, Service
from clare.templates import fill
from clare.version import __version__

PAGE = Path(__file__).with_name("page")

logger = logging.getLogger(__name__)

Top = Annotated[int, Query(ge=1, le=1000, description="How many names to return for each image.")]
Threshold = Annotated[
    float | None, Query(ge=0, le=1, description="From which score on an image counts as unknown; the model's if none.")
]
HowToLearn = Annotated[
    Mode, Query(description="learn: a new task; quick: class means only; update: more images of known classes.")
]


def make_app(options: Options) -> FastAPI:
    """Return the service for one model folder."""
    service = Service(options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="clare",
        version=__version__,
        description="A classifier that learns new classes.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.clear_up = service.clear_up
    _add_errors(app)
    _add_reading(app, service)
    _add_changing(app, service, options.token)
    app.mount("/assets", StaticFiles(directory=PAGE), name="assets")
    app.add_middleware(TimeLimit, limits=options.limits)
    app.add_middleware(SiteGuard, hosts=options.hosts)
    return app


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Document refusals."""
    return {status: {"model": Problem} for status in statuses}


def _add_reading(app: FastAPI, service: Service) -> None:
    """Add what changes nothing and needs no token."""

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        """Return the page."""
        return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/docs", include_in_schema=False)
    async def interface() -> HTMLResponse:
        """Describe the interface without scripts and without anything from elsewhere."""
        return HTMLResponse(fill("serve/interface.html", **app.openapi(), dumps=json.dumps))

    @app.get("/healthz", response_model=Health)
    async def health() -> Response:
        """Say that the server answers."""
        return JSONResponse({"status": "ok", "version": service.current.model.version})

    @app.get("/model", response_model=ModelAnswer)
    async def model() -> Response:
        """Describe the model in use: classes, capacity, history."""
        return JSONResponse(service.describe_model())

    @app.post(
        "/predict",
        response_model=Prediction,
        responses=_problems(400, 408, 409, 413, 415, 422, 429, 503),
        openapi_extra=PREDICT_FORM,
    )
    async def predict(request: Request, top: Top = 5, threshold: Threshold = None) -> Response:
        """Name what one or more images show."""
        return JSONResponse(await service.predict(request, top, threshold))

    @app.get("/jobs/{number}", response_model=JobAnswer, responses=_problems(404))
    async def job(number: str) -> Response:
        """Say how far a job is."""
        if number not in service.jobs.all:
            raise Refusal(404, "there is no such job; jobs are forgotten when the server starts again")
        return JSONResponse(service.jobs.all[number].shown())


def _add_changing(app: FastAPI, service: Service, token: str | None) -> None:
    """Add what changes the model."""
    bearer = HTTPBearer(auto_error=False, description="The server's token, if it was started with one.")

    def allowed(request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
        check_token(token, request.headers.get("authorization"))

    @app.post(
        "/learn",
        status_code=202,
        response_model=Accepted,
        responses=_problems(400, 401, 403, 408, 413, 415, 422, 429, 507),
        openapi_extra=LEARN_FORM,
        dependencies=[Depends(allowed)],
    )
    async def learn(request: Request, mode: HowToLearn = "learn") -> Response:
        """Queue a job that teaches new classes, or known ones with mode=update."""
        return JSONResponse({"job": await service.learn(request, mode)}, 202)

    @app.post(
        "/undo",
        response_model=Undone,
        responses=_problems(401, 403, 409),
        dependencies=[Depends(allowed)],
    )
    async def undo() -> Response:
        """Take back the last change."""
        return JSONResponse(await service.undo())


def _add_errors(app: FastAPI) -> None:
    """Answer every error with one sentence."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> Response:
        return JSONResponse({"detail": str(error)}, error.status, headers=error.headers)

    @app.exception_handler(ClareError)
    async def mistaken(_: Request, error: ClareError) -> Response:
        return JSONResponse({"detail": str(error)}, 422 if isinstance(error, DataError) else 409)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"][1:])
        message = problem["msg"][0].lower() + problem["msg"][1:]
        return JSONResponse({"detail": f"'{key}' is {str(problem['input'])[:100]!r}; {message}"}, 422)

    @app.exception_handler(OSError)
    async def unwritable(_: Request, error: OSError) -> Response:
        logger.error("a request could not be stored: %s", error)
        return JSONResponse({"detail": "the server could not store the request; its disk may be full"}, 507)

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": "the server failed unexpectedly; see its log"}, 500)
