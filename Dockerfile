# The search page in a container: docs/serving.md. Every package is compared with its hash; `.ci/pin-base` writes the
# digest of the base. Not built by the tests, which have no engine.
FROM python:3.11-slim

WORKDIR /opt/unseen
COPY pyproject.toml requirements-lock-service.txt README.md LICENSE ./
COPY unseen ./unseen
RUN pip install --no-cache-dir --require-hashes --extra-index-url https://download.pytorch.org/whl/cpu \
    -r requirements-lock-service.txt \
    && pip install --no-cache-dir --no-deps --no-build-isolation . \
    && useradd --create-home unseen

USER unseen
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=30s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["unseen"]
CMD ["serve", "/data/my.index", "--host", "0.0.0.0", "--workers", "2"]
