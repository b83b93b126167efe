#!/bin/bash
# Exits with 0 if /healthz answers 200, otherwise with 1. Without TLS it uses only bash, because a Python process would take
# half a second of CPU every ten seconds.
trap '' PIPE
host=${SNAPREPLAY_HTTP__HOST:-127.0.0.1}
case $host in
  0.0.0.0) host=127.0.0.1 ;;
  ::) host=::1 ;;
esac
if [ -n "$SNAPREPLAY_HTTP__TLS_CERTIFICATE_FILE" ]; then
  # The container asks itself, so the certificate need not be verified.
  exec /opt/snapreplay/bin/python -c 'import http.client, ssl, sys
any = ssl.create_default_context()
any.check_hostname, any.verify_mode = False, ssl.CERT_NONE
to = http.client.HTTPSConnection(sys.argv[1], int(sys.argv[2]), timeout=4, context=any)
to.request("HEAD", "/healthz")
sys.exit(to.getresponse().status != 200)' "$host" "${SNAPREPLAY_HTTP__PORT:-8080}" 2>/dev/null
fi
exec 3<>"/dev/tcp/$host/${SNAPREPLAY_HTTP__PORT:-8080}" || exit 1
printf 'HEAD /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3 2>/dev/null || exit 1
read -r -t 4 _ status _ <&3 || exit 1
[ "$status" = 200 ] || exit 1
