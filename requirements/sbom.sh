#!/usr/bin/env bash
# Bills of materials, licences and known vulnerabilities of our packages, into FOLDER. Called by make:
#
#   PYTHON=python3 requirements/sbom.sh FOLDER
#
# service.cdx.json has what the image holds, development.cdx.json what .venv does, both as CycloneDX and both with what
# is served with the page. It ends with 1 for a licence that is not allowed below, for a known vulnerability, and for a
# package that could not be asked about. With OSV_URL, the querybatch address of an OSV, that one is asked about all;
# else the index of packages is, and nobody about what is served with the page.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# By these our code and our users' code keep their own terms. The last two bind changes of the package's own files.
ALLOWED='Apache;BSD;CC0;ISC;MIT;PSF;Python Software Foundation;Zlib;MPL-2.0;Mozilla Public License 2.0'

folder=$1
failed=0
aside=$(mktemp -d)
trap 'rm -rf "$aside"' EXIT
mkdir -p "$folder"

tool() { "$aside/tools/bin/$1" "${@:2}"; }

install() { # install PYTHON LOCK-FILE
  .venv/bin/python -m pip --disable-pip-version-check --python "$1" install --quiet \
    --no-deps --require-hashes --only-binary :all: -r "requirements/$2.lock"
}

bill() { # bill NAME PYTHON
  tool cyclonedx-py environment "$2" --pyproject pyproject.toml --output-reproducible --output-file "$folder/$1.cdx.json"
}

look() { # look LOCK-FILE PYTHON
  local names
  mapfile -t names < <(sed -n 's/==.*//p' "requirements/$1.lock")
  tool pip-licenses --python "$2" --packages "${names[@]}" --from=mixed --format=markdown \
    --partial-match --allow-only "$ALLOWED" >"$folder/$1.licenses.md" || {
    echo "sbom: $1.lock: replace this package, or allow its licence in requirements/sbom.sh" >&2
    failed=1
  }
  tool pip-audit --strict --progress-spinner off "${database[@]}" --disable-pip --require-hashes -r "requirements/$1.lock" \
    --format json --output "$folder/$1.vulnerabilities.json" || {
    echo "sbom: $1.lock: update what is vulnerable (make lock), and ask again if somebody did not answer" >&2
    failed=1
  }
}

database=()
asked=()
if [[ -n ${OSV_URL:-} ]]; then
  database=(--vulnerability-service osv --osv-url "${OSV_URL%batch}")
  asked=(--ask "$folder/page.vulnerabilities.json" --osv "$OSV_URL")
else
  echo "sbom: nobody is asked about what is served with the page: set OSV_URL to the querybatch address of OSV" >&2
fi

"$PYTHON" -m venv --without-pip "$aside/tools"
"$PYTHON" -m venv --without-pip "$aside/service"
install "$aside/tools/bin/python" audit
install "$aside/service/bin/python" service
bill service "$aside/service/bin/python"
bill development .venv/bin/python
look service .venv/bin/python
look spark .venv/bin/python
"$PYTHON" requirements/vendored.py "${asked[@]}" "$folder"/*.cdx.json || failed=1
exit $failed
