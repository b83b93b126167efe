#!/usr/bin/env bash
# Creates the files of a base image with Debian's Python in DIR: base.sh DIR (as root, with debootstrap). It is for machines
# without an image registry. Like Debian's own slim images, it has no manuals, translations and documentation.
set -euo pipefail
dir=$(realpath -m "$1")
[ ! -e "$dir" ] || exit 0
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$dir.new" >/dev/null
cd "$dir.new"
printf 'path-exclude /usr/share/%s/*\n' man locale info lintian groff >etc/dpkg/dpkg.cfg.d/docker
printf 'path-exclude /usr/share/doc/*\npath-include /usr/share/doc/*/copyright\n' >>etc/dpkg/dpkg.cfg.d/docker
rm -rf usr/share/{man,locale,info,lintian,groff}/* var/cache/apt/* var/lib/apt/lists/* var/log/*.log var/log/apt
find usr/share/doc -not -type d -not -name copyright -delete
find usr/share/doc -type d -empty -delete
ln -sf python3 usr/bin/python
# The certificates that this machine trusts, because packages may come through a mirror.
cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/
mv "$dir.new" "$dir"
