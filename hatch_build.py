"""For hatchling: the list of what a wheel needs (SBOM, CycloneDX 1.6), put into its metadata."""

import json
import re
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAMED = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(.*)$")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `sboms/graphclean.cdx.json`. The wheel itself bundles nothing of others."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a wheel is made; an editable install needs no list."""
        if self.target_name != "wheel" or version == "editable":
            return
        core = self.metadata.core
        described = describe(
            core.raw_name, self.metadata.version, core.dependencies, core.optional_dependencies
        )
        self.folder = Path(tempfile.mkdtemp())
        place = self.folder / f"{core.name}.cdx.json"
        place.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
        build_data["sbom_files"].append(str(place))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Once it is in the wheel."""
        del version, build_data, artifact_path
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


def describe(
    name: str, version: str, dependencies: list[str], optional: dict[str, list[str]]
) -> dict[str, Any]:
    """The same for the same metadata: no time, no place, and a serial number by what it says."""
    reference = f"pkg:pypi/{name}@{version}"
    needed = {_key(text): text for text in dependencies}
    extras: dict[str, dict[str, str]] = {}
    for extra, texts in optional.items():
        for text in texts:
            if _key(text) not in needed and _key(text) != name:
                extras.setdefault(_key(text), {})[extra] = text
    components = [_component(key, "required", {"requirement": text}) for key, text in sorted(needed.items())]
    components += [
        _component(key, "optional", {f"requirement:{extra}": text for extra, text in sorted(found.items())})
        for key, found in sorted(extras.items())
    ]
    body: dict[str, Any] = {
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "library",
                "bom-ref": reference,
                "name": name,
                "version": version,
                "purl": reference,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": components,
        "dependencies": [
            {
                "ref": reference,
                "dependsOn": [one["bom-ref"] for one in components if one["scope"] == "required"],
            },
            *({"ref": one["bom-ref"]} for one in components),
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return {**head, **body}


def _key(requirement: str) -> str:
    """The normalized name of a requirement."""
    found = NAMED.match(requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[1]).lower()


def _component(key: str, scope: str, facts: dict[str, str]) -> dict[str, Any]:
    reference = f"pkg:pypi/{key}"
    properties = [{"name": f"graphclean:{name}", "value": text} for name, text in facts.items()]
    return {
        "type": "library",
        "bom-ref": reference,
        "name": key,
        "purl": reference,
        "scope": scope,
        "properties": properties,
    }
