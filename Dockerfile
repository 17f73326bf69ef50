# A node and nothing else: docker build --tag holdfast .
# With Java and Spark, for the compaction job, and as the image of Spark's executors: docker build --target spark --tag holdfast-spark .
# Settings come from the environment; docs/run.md has the rest.

# The wheel that ships: its hot path is compiled.
FROM python:3.11-slim AS wheel
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY deploy/requirements-build.lock deploy/
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement deploy/requirements-build.lock
COPY setup.py pyproject.toml README.md LICENSE ./
COPY holdfast holdfast
RUN COMPILE_HOLDFAST=1 pip wheel --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist .

FROM python:3.11-slim AS build
WORKDIR /build
RUN python -m venv /opt/holdfast
COPY deploy/requirements.lock deploy/
RUN /opt/holdfast/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement deploy/requirements.lock
COPY --from=wheel /build/dist dist
RUN /opt/holdfast/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps dist/*.whl

FROM build AS build-spark
COPY deploy/requirements-spark.lock deploy/
RUN /opt/holdfast/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement deploy/requirements-spark.lock

FROM python:3.11-slim AS spark
RUN apt-get update \
    && apt-get install --yes --no-install-recommends default-jre-headless libnss-wrapper procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home --home-dir /var/lib/holdfast --shell /usr/sbin/nologin holdfast
COPY --from=build-spark /opt/holdfast /opt/holdfast
# Spark's connector to Kafka is fetched into the cache when the job first starts.
ENV PATH=/opt/holdfast/bin:$PATH HOLDFAST_LISTEN=0.0.0.0:9492 HOLDFAST_CACHE=/var/lib/holdfast/cache \
    HOLDFAST_COMPACTION_CHECKPOINT_DIR=/var/lib/holdfast/checkpoint HOLDFAST_COMPACTION_HISTORY_DIR=/var/lib/holdfast/history
USER 10001
VOLUME /var/lib/holdfast
EXPOSE 9492
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9592/ready', timeout=4)"]
ENTRYPOINT ["holdfast"]
CMD ["serve"]

FROM python:3.11-slim AS node
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin holdfast
COPY --from=build /opt/holdfast /opt/holdfast
# A container is reached from outside, under a name that only its operator knows: HOLDFAST_ADVERTISED_LISTENER has no default.
ENV PATH=/opt/holdfast/bin:$PATH HOLDFAST_LISTEN=0.0.0.0:9492
USER 10001
EXPOSE 9492
# It checks for readiness over HTTP, which needs no login: a node that loads, waits because it was superseded, or hears no broker, is
# not healthy. Where something restarts what is not healthy, ask /live: a new start mends none of these.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9592/ready', timeout=4)"]
ENTRYPOINT ["holdfast"]
CMD ["serve"]
