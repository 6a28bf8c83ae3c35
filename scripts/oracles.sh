#!/usr/bin/env bash
# Installs the real packages that the differential tests ask into one folder, once:
#   $SNAPSHOTTER_ORACLES (default ~/.cache/snapshotter-oracles)
#     ai       npm ai@7.0.173, the AI SDK's client
#     agents   npm agents@0.32.0, Cloudflare's chat module
#     zett     a virtual environment with zett-agent 0.2.1
# The pins matter: `npm install ai` on Node 20 quietly takes an older major version.
set -euo pipefail
home=${SNAPSHOTTER_ORACLES:-$HOME/.cache/snapshotter-oracles}

node_package() { # folder, packages …
  local folder=$home/$1
  shift
  [[ -e $folder/.done ]] && return
  mkdir -p "$folder"
  (
    cd "$folder"
    [[ -e package.json ]] || npm init -y >/dev/null
    npm install --silent --no-fund --no-audit "$@"
    touch .done
  )
}

node_package ai ai@7.0.173
node_package agents agents@0.32.0 ai@6
if [[ ! -e $home/zett/.done ]]; then
  "${PYTHON:-python3}" -m venv "$home/zett"
  "$home/zett/bin/python" -m pip install --quiet --disable-pip-version-check zett-agent==0.2.1
  touch "$home/zett/.done"
fi
echo "$home"
