FROM python:3.13-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/gustfront gustfront
WORKDIR /opt/gustfront
COPY pyproject.toml constraints.txt README.md ./
COPY app app
COPY collectors collectors
COPY core core
COPY detectors detectors
COPY fleet fleet
COPY sql sql
RUN pip install --no-cache-dir --constraint constraints.txt .
USER gustfront
WORKDIR /var/lib/gustfront
ENTRYPOINT []
CMD ["gustfront", "run", "--host", "0.0.0.0"]
