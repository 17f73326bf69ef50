# A node and nothing else: docker build --tag holdfast .
# Settings come from the environment; docs/operations.md has the rest.

FROM python:3.11-slim AS build
WORKDIR /build
RUN python -m venv /opt/holdfast
COPY deploy/requirements.lock deploy/
RUN /opt/holdfast/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement deploy/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY holdfast holdfast
RUN /opt/holdfast/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin holdfast
COPY --from=build /opt/holdfast /opt/holdfast
# A container is reached from outside, under a name that only its operator knows: HOLDFAST_ADVERTISED_LISTENER has no default.
ENV PATH=/opt/holdfast/bin:$PATH HOLDFAST_LISTEN=0.0.0.0:9492
USER 10001
EXPOSE 9492
# It asks for an answer, not for readiness: a node that loads, or waits because it was superseded, is healthy.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["holdfast", "status"]
ENTRYPOINT ["holdfast"]
CMD ["serve"]
