FROM python:3.12-slim
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve]'
RUN useradd --create-home clare
USER clare
WORKDIR /home/clare
EXPOSE 8000
ENTRYPOINT ["clare"]
