"""Writes a Go module that builds the programs of Kubernetes 1.VERSION: `modules.py VERSION`, in an empty folder."""

import sys
from pathlib import Path

STAGING = [
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "cloud-provider",
    "cluster-bootstrap",
    "code-generator",
    "component-base",
    "component-helpers",
    "controller-manager",
    "cri-api",
    "cri-client",
    "csi-translation-lib",
    "dynamic-resource-allocation",
    "endpointslice",
    "externaljwt",
    "kms",
    "kube-aggregator",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "metrics",
    "mount-utils",
    "pod-security-admission",
    "sample-apiserver",
    "sample-cli-plugin",
    "sample-controller",
]
COMMANDS = {
    "kube-apiserver": "NewAPIServerCommand",
    "kube-controller-manager": "NewControllerManagerCommand",
    "kube-proxy": "NewProxyCommand",
    "kube-scheduler": "NewSchedulerCommand",
    "kubelet": "NewKubeletCommand",
}
MAIN = """package main

import (
\t"os"

\t"k8s.io/component-base/cli"
\t"k8s.io/kubernetes/cmd/{name}/app"
)

func main() {{ os.Exit(cli.Run(app.{command}())) }}
"""


def main(version: str) -> None:
    replaced = "".join(f"\tk8s.io/{name} => k8s.io/{name} v0.{version}\n" for name in STAGING)
    module = f"module node\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v1.{version}\n\nreplace (\n{replaced})\n"
    Path("go.mod").write_text(module, encoding="utf-8")
    for name, command in COMMANDS.items():
        Path(name).mkdir(exist_ok=True)
        Path(name, "main.go").write_text(MAIN.format(name=name, command=command), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
