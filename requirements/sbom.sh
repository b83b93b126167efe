#!/usr/bin/env bash
# Writes bills of materials, licences and known vulnerabilities of all packages into FOLDER. make calls it:
#
#   PYTHON=python3 requirements/sbom.sh FOLDER
#
# service.cdx.json lists the packages of the image, development.cdx.json those of .venv. Both are CycloneDX, and include
# the JavaScript packages of the page. The exit code is 1 if a licence is not allowed below, if a vulnerability is known,
# or if a package could not be checked. OSV_URL is the querybatch address of an OSV database, which then checks all
# packages. Without it the Python package index checks the Python packages, and the packages of the page are not checked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Under these licences our code and that of our users keep their own terms. The last two apply to changes of the package itself.
ALLOWED='Apache;BSD;CC0;ISC;MIT;PSF;Python Software Foundation;Zlib;MPL-2.0;Mozilla Public License 2.0'

folder=$1
failed=0
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
mkdir -p "$folder"

tool() { "$temporary/tools/bin/$1" "${@:2}"; }

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
    echo "sbom: $1.lock: a licence is not allowed: replace the package, or allow its licence in requirements/sbom.sh" >&2
    failed=1
  }
  tool pip-audit --strict --progress-spinner off "${database[@]}" --disable-pip --require-hashes -r "requirements/$1.lock" \
    --format json --output "$folder/$1.vulnerabilities.json" || {
    echo "sbom: $1.lock: update the vulnerable packages (make lock UV_ARGS=--upgrade). If a package could not be checked, run make sbom again" >&2
    failed=1
  }
}

database=()
page_check=()
if [[ -n ${OSV_URL:-} ]]; then
  database=(--vulnerability-service osv --osv-url "${OSV_URL%batch}")
  page_check=(--ask "$folder/page.vulnerabilities.json" --osv "$OSV_URL")
else
  echo "sbom: the packages of the page are not checked for vulnerabilities: set OSV_URL to the querybatch address of OSV" >&2
fi

"$PYTHON" -m venv --without-pip "$temporary/tools"
"$PYTHON" -m venv --without-pip "$temporary/service"
install "$temporary/tools/bin/python" audit
install "$temporary/service/bin/python" service
bill service "$temporary/service/bin/python"
bill development .venv/bin/python
look service .venv/bin/python
look spark .venv/bin/python
"$PYTHON" requirements/vendored.py "${page_check[@]}" "$folder"/*.cdx.json || failed=1
exit $failed
