#!/usr/bin/env bash
# Runs a real Kubernetes of one node on a bridge of this machine: node.sh build|up|down DIR
#
# It builds Kubernetes from its Go modules, so that no image registry is needed. Run it as root on Debian, with Go, kubectl
# and: apt-get install containerd containernetworking-plugins curl etcd-server iptables openssl podman runc
# It listens only on 127.0.0.1 and the bridge.
set -euo pipefail
do=$1 dir=$(realpath -m "$2") here=$(dirname "$(realpath "$0")")
minor=33.5
bridge=10.213.0.1
queued=(-o snapreplay0 -m conntrack --ctstate NEW -j NFQUEUE --queue-num 100)

build() { # takes a quarter of an hour on two cores
  mkdir -p "$dir/src" "$dir/bin"
  cd "$dir/src"
  python3 "$here/modules.py" "$minor"
  [ -e go.sum ] || go mod tidy
  local at=k8s.io/component-base/version
  local flags="-X $at.gitVersion=v1.$minor -X $at.gitMajor=1 -X $at.gitMinor=${minor%%.*}"
  for each in kubelet kube-apiserver kube-controller-manager kube-scheduler kube-proxy; do
    [ -e "$dir/bin/$each" ] || go build -ldflags "$flags" -o "$dir/bin/$each" "./$each"
  done
  [ -e "$dir/bin/coredns" ] || GOBIN="$dir/bin" go install github.com/coredns/coredns@v1.12.4
  [ -e "$dir/bin/kube-network-policies" ] || { GOBIN="$dir/bin" go install sigs.k8s.io/kube-network-policies/cmd@v0.8.0 && mv "$dir/bin/cmd" "$dir/bin/kube-network-policies"; }
  # The program of the pause container, which every pod has.
  cat >pause.go <<'T'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	<-asked
}
T
  CGO_ENABLED=0 go build -o "$dir/bin/pause" pause.go
}

run() {
  local name=$1
  shift
  setsid nohup "$@" >"$dir/$name.log" 2>&1 &
  echo $! >"$dir/$name.pid"
}

up() { # start with an empty cluster, even if an earlier run failed
  rm -rf "$dir"/{etcd,kubelet,cni}
  mkdir -p "$dir/cni"
  cd "$dir"
  configure
  run containerd containerd -c containerd.toml
  run etcd etcd --data-dir etcd --listen-client-urls http://127.0.0.1:23791 --advertise-client-urls http://127.0.0.1:23791 \
    --listen-peer-urls http://127.0.0.1:23801 --initial-advertise-peer-urls http://127.0.0.1:23801 \
    --initial-cluster default=http://127.0.0.1:23801
  until [ -S containerd.sock ] && ctr -a containerd.sock version >/dev/null 2>&1; do sleep 0.2; done
  ctr -a containerd.sock -n k8s.io images import pause.tar >/dev/null
  run apiserver bin/kube-apiserver --etcd-servers=http://127.0.0.1:23791 --secure-port=16444 --bind-address="$bridge" \
    --advertise-address="$bridge" --cert-dir=certs --service-account-key-file=sa.pub --service-account-signing-key-file=sa.key \
    --service-account-issuer=https://kubernetes.default --token-auth-file=tokens.csv --authorization-mode=RBAC --kubelet-preferred-address-types=InternalIP \
    --service-cluster-ip-range=10.214.0.0/24
  until curl -sk "https://$bridge:16444/readyz" -H 'Authorization: Bearer admin' | grep -q ok; do sleep 0.5; done
  run controllers bin/kube-controller-manager --kubeconfig=kubeconfig --service-account-private-key-file=sa.key \
    --leader-elect=false --bind-address=127.0.0.1
  run scheduler bin/kube-scheduler --kubeconfig=kubeconfig --leader-elect=false --bind-address=127.0.0.1
  run kubelet bin/kubelet --config=kubelet.yaml --kubeconfig=kubeconfig --hostname-override=node1 \
    --root-dir="$dir/kubelet" --node-ip="$bridge" --cert-dir="$dir/kubelet/pki"
  run proxy bin/kube-proxy --config=proxy.yaml --hostname-override=node1
  run dns bin/coredns -conf Corefile
  policies
  until kubectl --kubeconfig kubeconfig get node/node1 >/dev/null 2>&1; do sleep 0.5; done
  kubectl --kubeconfig kubeconfig wait --for=condition=Ready node/node1 --timeout=120s
}

# Start kube-network-policies, which judges the first packet of each connection between pods. It expects to run in a pod, so
# a service account is mounted for this process alone. It would use `queue` of nftables, which some kernels lack. The iptables
# rule below has the same effect.
policies() {
  mkdir -p account
  echo -n admin >account/token
  cp certs/apiserver.crt account/ca.crt
  run policies env KUBERNETES_SERVICE_HOST="$bridge" KUBERNETES_SERVICE_PORT=16444 unshare -m sh -c '
    mkdir -p /run/secrets && mount -t tmpfs none /run/secrets && mkdir -p /run/secrets/kubernetes.io/serviceaccount
    cp account/* /run/secrets/kubernetes.io/serviceaccount
    exec bin/kube-network-policies -hostname-override node1 -metrics-bind-address 127.0.0.1:10251 -disable-nri -v 2'
  iptables -I FORWARD "${queued[@]}"
}

configure() {
  ip link show snapreplay0 >/dev/null 2>&1 || ip link add snapreplay0 type bridge
  ip addr replace "$bridge/24" dev snapreplay0
  ip link set snapreplay0 up
  openssl genrsa -out sa.key 2048 2>/dev/null
  openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
  echo 'admin,admin,admin,"system:masters"' >tokens.csv
  cat >kubeconfig <<T
apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "https://$bridge:16444", insecure-skip-tls-verify: true}}]
users: [{name: a, user: {token: admin}}]
contexts: [{name: c, context: {cluster: k, user: a}}]
current-context: c
T
  cat >containerd.toml <<T
version = 2
root = "$dir/containerd/root"
state = "$dir/containerd/state"
[grpc]
  address = "$dir/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
T
  cat >cni/10.conflist <<T
{"cniVersion": "0.4.0", "name": "k", "plugins": [
  {"type": "bridge", "bridge": "snapreplay0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$dir/cni/ips", "ranges": [[{"subnet": "10.213.0.0/24", "rangeStart": "10.213.0.10"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}}]}
T
  cat >kubelet.yaml <<T
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failSwapOn: false
failCgroupV1: false
address: $bridge
healthzBindAddress: 127.0.0.1
containerRuntimeEndpoint: unix://$dir/containerd.sock
cgroupsPerQOS: false
enforceNodeAllocatable: []
evictionHard: {nodefs.available: "1%", imagefs.available: "1%"}
localStorageCapacityIsolation: false
clusterDNS: [$bridge]
clusterDomain: cluster.local
T
  cat >proxy.yaml <<T
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $dir/kubeconfig}
mode: iptables
bindAddress: 127.0.0.1
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0}
T
  cat >Corefile <<T
cluster.local:53 {
  bind $bridge
  kubernetes cluster.local {
    kubeconfig $dir/kubeconfig c
    pods insecure
  }
  errors
}
T
}

down() {
  local pid ctr="ctr -a $dir/containerd.sock -n k8s.io"
  iptables -D FORWARD "${queued[@]}" 2>/dev/null || true
  for each in policies dns proxy kubelet scheduler controllers apiserver containerd etcd; do
    [ -e "$dir/$each.pid" ] || continue
    [ $each != containerd ] || $ctr tasks ls -q | xargs -r $ctr tasks rm -f >/dev/null || true # the kubelet has ended, so it starts no new containers
    pid=$(cat "$dir/$each.pid")
    kill "$pid" 2>/dev/null || true
    timeout 20 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" || true
    rm "$dir/$each.pid"
  done
  awk -v dir="$dir/" 'index($2, dir) == 1 {print $2}' /proc/mounts | tac | xargs -r umount -l
  ip link del snapreplay0 2>/dev/null || true
}

"$do"
