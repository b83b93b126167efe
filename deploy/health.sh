#!/bin/bash
# Whether GET /healthz answers 200: exit code 0 or 1. Only bash, because a Python starts for half a second of
# processor time, every ten seconds.
trap '' PIPE
host=${SNAPREPLAY_HTTP__HOST:-127.0.0.1}
case $host in
  0.0.0.0) host=127.0.0.1 ;;
  ::) host=::1 ;;
esac
exec 3<>"/dev/tcp/$host/${SNAPREPLAY_HTTP__PORT:-8080}" || exit 1
printf 'HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3 2>/dev/null || exit 1
read -r -t 4 _ status _ <&3 || exit 1
[ "$status" = 200 ] || exit 1
