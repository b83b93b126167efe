#!/usr/bin/env bash
# Provides Docker and Compose on a machine where they are not installed: engine.sh build|up|images|down DIR
#
# It unpacks Debian's packages without installing them, because an installed package starts a server, and builds Compose
# from its Go module. Run it as root on Debian, with Go and: apt-get install containerd debootstrap iptables runc
# It also builds the images that compose.yaml names, with the same programs, so that no image registry is needed. Kafka's
# image has the entry point of the official one, which turns environment variables into settings.
set -euo pipefail
do=$1 dir=$(realpath -m "$2") root=$(realpath "$(dirname "$0")/../../..")
compose=v2.40.3
export DOCKER_HOST=unix://$dir/docker.sock DOCKER_BUILDKIT=1
PATH=$dir/root/usr/bin:$dir/root/usr/sbin:$PATH

build() {
  mkdir -p "$dir"
  cd "$dir"
  [ -e root ] || { apt-get download -qq docker.io tini && for each in ./*.deb; do dpkg -x "$each" root.new; done && mv root.new root && rm ./*.deb; }
  [ -e docker-compose ] || { # build it as the main module, because its go.mod has excludes
    go mod download "github.com/docker/compose/v2@$compose"
    cd "$(go env GOMODCACHE)/github.com/docker/compose/v2@$compose"
    go build -ldflags "-X github.com/docker/compose/v2/internal.Version=$compose" -o "$dir/docker-compose" ./cmd
  }
  "$root/tests/deploy/base.sh" "$dir/base"
  # The jars of Kafka's official image that the local broker does not need.
  for each in org.apache.kafka:kafka-tools:4.3.1 com.fasterxml.jackson.dataformat:jackson-dataformat-yaml:2.21.2 org.yaml:snakeyaml:2.5; do
    [ -e "$dir/more/${each##*:}" ] || mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
      -Dartifact="$each" -DoutputDirectory="$dir/more/${each##*:}"
  done
}

run() { # run NAME COMMAND…: start it in the background, with NAME.log and NAME.pid
  local name=$1
  shift
  setsid nohup "$@" >"$dir/$name.log" 2>&1 &
  echo $! >"$dir/$name.pid"
}

up() {
  cat >"$dir/containerd.toml" <<T
version = 2
root = "$dir/containerd/root"
state = "$dir/containerd/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "$dir/containerd.sock"
T
  run containerd containerd -c "$dir/containerd.toml"
  run dockerd dockerd --containerd "$dir/containerd.sock" --data-root "$dir/data" --exec-root "$dir/exec" -p "$dir/docker.pid" \
    -H "$DOCKER_HOST" --bip 10.215.0.1/24 --default-address-pool base=10.216.0.0/16,size=24
  timeout 60 bash -c 'until docker version >/dev/null 2>&1; do sleep 0.2; done' || { tail "$dir/dockerd.log" >&2; exit 1; }
}

has() {
  docker image inspect "$1" >/dev/null 2>&1
}

images() {
  has python:3.11-slim-bookworm || tar -C "$dir/base" -c . \
    | docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
      --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' - python:3.11-slim-bookworm >/dev/null
  has apache/kafka:4.3.1 || kafka
  has prom/prometheus:v3.5.0 || prometheus
}

kafka() {
  local here=$dir/kafka
  mkdir -p "$here/libs"
  cp "$root"/.jars/kafka/lib/*.jar "$dir"/more/*/*.jar "$here/libs"
  cat >"$here/tool" <<'T'
#!/bin/sh
case ${0##*/} in
  kafka-topics.sh) class=org.apache.kafka.tools.TopicCommand ;;
  kafka-console-producer.sh) class=org.apache.kafka.tools.ConsoleProducer ;;
esac
exec java -Xmx128m -cp '/opt/kafka/libs/*' "$class" "$@"
T
  cat >"$here/run" <<'T'
#!/bin/sh
set -e
export CLUSTER_ID="${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}"
java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
  --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config
exec java -Xmx512m -cp '/opt/kafka/libs/*' kafka.Kafka /opt/kafka/config/server.properties
T
  chmod +x "$here/tool" "$here/run"
  cat >"$here/Dockerfile" <<'T'
FROM python:3.11-slim-bookworm
RUN mkdir -p /usr/share/man/man1 && apt-get update && apt-get install -y --no-install-recommends default-jre-headless
COPY libs /opt/kafka/libs
COPY tool run /opt/kafka/bin/
RUN cd /opt/kafka/bin && ln tool kafka-topics.sh && ln tool kafka-console-producer.sh \
 && useradd --uid 1000 appuser && mkdir -p /etc/kafka/docker /mnt/shared/config /opt/kafka/config /var/lib/kafka/data \
 && cd /etc/kafka/docker && touch server.properties log4j2.yaml tools-log4j2.yaml \
 && chown -R appuser /opt/kafka/config /var/lib/kafka /mnt/shared/config
USER appuser
ENTRYPOINT ["/opt/kafka/bin/run"]
T
  docker build -q -t apache/kafka:4.3.1 "$here"
}

prometheus() {
  local here=$dir/prometheus
  mkdir -p "$here"
  cp "$root/.jars/prometheus/usr/bin/prometheus" "$here"
  cat >"$here/Dockerfile" <<'T'
FROM python:3.11-slim-bookworm
COPY prometheus /bin/
RUN mkdir /prometheus && chown nobody /prometheus
USER nobody
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus", "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
T
  docker build -q -t prom/prometheus:v3.5.0 "$here"
}

down() {
  local pid
  for each in dockerd containerd; do
    [ -e "$dir/$each.pid" ] || continue
    pid=$(cat "$dir/$each.pid")
    kill "$pid" 2>/dev/null || true
    timeout 60 tail --pid="$pid" -f /dev/null
    rm "$dir/$each.pid"
  done
}

"$do"
