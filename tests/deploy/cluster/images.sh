#!/usr/bin/env bash
# Builds the images of `make cluster` with podman, on a base of Debian's packages, so no image registry is needed: images.sh DIR
# Run it as root, with: apt-get install buildah debootstrap podman runc
set -euo pipefail
dir=$(realpath -m "$1") root=$(realpath "$(dirname "$0")/../../..")
base=localhost/debian-python:bookworm
mkdir -p "$dir"
# Some machines do not allow raising limits, nor the control groups that crun needs.
cat >"$dir/containers.conf" <<T
[engine]
runtime = "runc"
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
netns = "host"
T
export CONTAINERS_CONF=$dir/containers.conf

if ! podman image exists "$base"; then
  "$root/tests/deploy/base.sh" "$dir/base"
  tar -C "$dir/base" -c . | podman import -q --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' - "$base"
fi
podman build -q --format docker --build-arg PYTHON_IMAGE="$base" -t localhost/snapreplay "$root"

ledger() { # ledger VERSION <APP-FILE: build the image of the app
  local folder=$dir/ledger-$1
  mkdir -p "$folder"
  printf 'FROM localhost/snapreplay\nCOPY ledger.py app.py\n' >"$folder/Dockerfile"
  cat >"$folder/ledger.py"
  podman build -q --format docker -t "localhost/ledger:$1" "$folder"
}
ledger v1 <"$root/examples/ledger.py"
# The next version also stores the last payment of each account.
sed 's/^\( *\)account\["balance"\] += .*/&\n\1account["last"] = record.value["amount"]/' "$root/examples/ledger.py" | ledger v2

tar -C "$dir/bin" -c pause | podman import -q --change 'ENTRYPOINT ["/pause"]' - localhost/pause:1
rm -f "$dir/pause.tar"
podman save -q localhost/pause:1 -o "$dir/pause.tar"
podman image inspect localhost/snapreplay --format 'the image has {{.Size}} bytes, including its base image'
