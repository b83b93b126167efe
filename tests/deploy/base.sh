#!/usr/bin/env bash
# The files of an image with Debian's Python, for machines that can pull none: base.sh DIR (as root, with debootstrap)
# As slim as Debian's own images: without manuals, translations and documentation.
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
# What this machine trusts: packages may come through a mirror.
cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/
mv "$dir.new" "$dir"
