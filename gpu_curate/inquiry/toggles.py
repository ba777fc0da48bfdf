"""Rules taken away, chosen or moved, as keys of a recipe: what is asked is a recipe, and can be run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpu_curate.config import Config, did_you_mean, parse
from gpu_curate.config.load import apply_override
from gpu_curate.config.own import with_own
from gpu_curate.errors import ConfigError
from gpu_curate.quality import FAMILIES, Quality, rules
from gpu_curate.quality.columns import FAMILY as COLUMNS
from gpu_curate.quality.columns import PREFIX
from gpu_curate.quality.judges import FAMILY as JUDGES
from gpu_curate.quality.judges import JudgeRule
from gpu_curate.quality.rule import Rule
from gpu_curate.section import Stored
from gpu_curate.stages.order import dropping_of
from gpu_curate.stages.reasons import FORGOTTEN, OTHER_REASONS
from gpu_curate.stages.rejects import REJECTED
from gpu_curate.store.run_directory import differences

# Why a reason cannot be taken away.
_FIXED = {
    "empty": "a document without text gives no token, so no recipe keeps it",
    FORGOTTEN: "it is on the run's list; take it out of that, if it is to come back",
    REJECTED: "what could not be read is no document",
    "reference_duplicate": "without a dedup_against set other documents connect: run the recipe without it",
}


@dataclass(frozen=True)
class Question:
    """What the run would have decided with another recipe.

    Attributes:
        config: that recipe.
        overrides: its difference from the run's own, as `--set` of `gpu-curate run` takes it.
        yaml: the same as YAML; "" where nothing differs.
        notes: what the asker may not expect.
    """

    config: Config
    overrides: tuple[str, ...] = ()
    yaml: str = ""
    notes: tuple[str, ...] = ()


def question(
    config: Config, without: Iterable[str] = (), only: Iterable[str] = (), changes: Iterable[str] = ()
) -> Question:
    """The recipe in which some rules are off, or only some on, and some thresholds moved.

    Args:
        config: of the run.
        without: rules or families to switch off, as the report names them.
        only: rules or families to leave on; every other one is switched off. One that is off in the run is switched on.
        changes: "key.path=value", as `--set`; they come last.
    Raises:
        ConfigError: no such rule or key, a value out of range, or a key that stored scores do not answer.
    """
    without, only, changes = list(without), list(only), list(changes)
    asked = [*_only(config, only), *(o for name in without for o in _off(config, name))]
    data = plain(config)
    for override in asked:
        apply_override(data, override)
    off = [family for family in FAMILIES if not data["quality"].get(family)]
    for override in changes:
        apply_override(data, override)
    wanted = with_classes(config, parse(data, "funnel", Stored()))
    _check(config, wanted)
    changed = _changed(config, wanted)
    notes = []
    if only and "reference_duplicate" not in only and _fixed_references(wanted):
        notes.append(f"reference_duplicate stays: {_FIXED['reference_duplicate']}")
    for family in off:
        if isinstance(data["quality"].get(family), dict):
            notes.append(
                f"quality.{family} is off, and a key of it switches it on with the published bounds of its rules"
            )
    if not changed and (without or only or changes):
        notes.append("nothing changes: the run's own recipe is so")
    overrides = tuple(f"{key}={json.dumps(value)}" for key, value in changed.items())
    return Question(wanted, overrides, as_yaml(wanted, changed), tuple(notes))


def with_classes(old: Config, new: Config) -> Config:
    """A recipe with the rules of the user's own classes, whose scores the run has stored.

    Raises:
        ConfigError: a class, bound or parameter that the run did not have: nothing stored answers it.
    """
    known = {}
    for name, own in new.quality.own.items():
        before = old.quality.own.get(name)
        rules = before.resolved.rules if before is not None and before.resolved is not None else ()
        bounded = {rule.key for rule in rules}
        was = {} if before is None else before.root
        changed = [key for key in own.root.keys() | was.keys() if own.root.get(key) != was.get(key)]
        if before is None or before.resolved is None or not bounded.issuperset(changed):
            key = min((key for key in changed if key not in bounded), default="")
            raise ConfigError(
                f"quality.{name}{f'.{key}' if key else ''}: what is stored does not tell what that would change",
                "of a class of your own the bounds that the run had can be moved; for others run the recipe",
            )
        kept = tuple(replace(r, limit=own.root[r.key]) for r in rules if own.root.get(r.key) is not None)
        known[name] = own.known(replace(before.resolved, rules=kept))
    return new.model_copy(update={"quality": with_own(new.quality, known)}) if known else new


def rule_names(config: Config) -> list[str]:
    """Every rule that can be asked about, in the order of the families; other reasons after them."""
    return [*(rule.name for rule in _all_rules(config).values()), *(r for r in OTHER_REASONS if r not in _FIXED)]


def rule_of(config: Config, name: str) -> Rule | None:
    """A quality rule with its bound in this recipe; None: the reason is of another kind. Raises: ConfigError: no such rule."""
    check_name(config, name)
    return _all_rules(config).get(name)


def key_of(config: Config, name: str) -> str:
    """The key of a rule's threshold. Raises: ConfigError: no such rule, or it has no threshold, or several."""
    rule = rule_of(config, name)
    if rule is not None and rule.bound in ("min", "max"):
        return rule.path
    if name == "too_few_tokens":
        return "min_tokens"
    if name == "language":
        return "language.min_score"
    if name == "contaminated":
        sets = [r.name for r, _ in dropping_of(config)]
        if len(sets) == 1:
            return f"{_set_key(config, sets[0])}.max_coverage"
        raise ConfigError(
            f"contaminated: {len(sets)} sets have a threshold each" if sets else "contaminated: no set is there",
            "ask with --set references.NAME.max_coverage=VALUE",
        )
    raise ConfigError(f"{name} has no threshold", f"it is there or not: --without {name}")


def _all_rules(config: Config) -> dict[str, Rule]:
    """Rules by name: those of families that are off with their published bounds."""
    published = rules(Quality.model_validate(dict.fromkeys(FAMILIES, True)))
    own = {rule.name: rule for rule in rules(config.quality)}
    return {rule.name: own.get(rule.name, rule) for rule in published} | own


def check_name(config: Config, name: str) -> None:
    """Raises: ConfigError: neither a rule, nor a family, nor another reason."""
    families = (*FAMILIES, *([COLUMNS] if config.quality.columns else []), *([JUDGES] if config.quality.judges else []))
    known = [*rule_names(config), *families, *_FIXED]
    if name not in known:
        raise ConfigError(f"{name}: no such rule{did_you_mean(name, known)}", f"there are {', '.join(known)}")


def _off(config: Config, name: str) -> list[str]:
    """The overrides that switch a rule or a family off."""
    check_name(config, name)
    if name in _FIXED:
        raise ConfigError(f"{name} cannot be taken away: {_FIXED[name]}")
    if name in FAMILIES:
        return [f"quality.{name}=null"]
    rule = _all_rules(config).get(name)
    if name == JUDGES:
        return [override for own in _family(config, JUDGES) for override in _off(config, own)]
    if isinstance(rule, JudgeRule):
        return [f'{rule.path}="keep"' if rule.bound == "no" else f"{rule.path}=null"]
    if name == COLUMNS or (rule is not None and rule.score.startswith(PREFIX)):
        return [_without_columns(config, [n for n in _family(config, COLUMNS) if name in (n, COLUMNS)])]
    if rule is not None:
        family = name.partition(":")[0]
        return [f"{rule.path}=null"] if getattr(config.quality, family, True) is not None else []
    return {
        "language": ["language.keep=null"],
        "exact_duplicate": ["dedup.exact=false"],
        "fuzzy_duplicate": ["dedup.fuzzy=null"],
        "contaminated": [f"{_set_key(config, r.name)}.max_coverage=1.0" for r, _ in dropping_of(config)],
        "too_few_tokens": ["min_tokens=0"],
    }[name]


def _without_columns(config: Config, names: list[str]) -> str:
    """The override that takes bounds on columns away: a column that nothing bounds any more is left out."""
    columns = plain(config)["quality"]["columns"]
    for rule in (rule for name, rule in _family(config, COLUMNS).items() if name in names):
        bounds = columns[rule.score.removeprefix(PREFIX)]
        bounds.pop(rule.key)
    kept = {
        name: bounds
        for name, bounds in columns.items()
        if bounds.keys() - {"missing"} or bounds.get("missing") == "drop"
    }
    return f"quality.{COLUMNS}={json.dumps(kept)}"


def _only(config: Config, names: list[str]) -> list[str]:
    """The overrides after which these rules are on, and no other one that can be off."""
    if not names:
        return []
    for name in names:
        check_name(config, name)
    groups = (*FAMILIES, COLUMNS, JUDGES)
    wanted = {rule for name in names for rule in ([name] if name not in groups else _family(config, name))}
    found = []
    for family in FAMILIES:
        own = _family(config, family)
        if not wanted & set(own):
            found += [f"quality.{family}=null"] if getattr(config.quality, family) is not None else []
            continue
        if getattr(config.quality, family) is None:
            found.append(f"quality.{family}=true")
        found += [f"{rule.path}=null" for name, rule in own.items() if name not in wanted]
        found += [
            f"{rule.path}={json.dumps(_published(config, name))}"
            for name, rule in own.items()
            if name in wanted and rule.limit is None
        ]
    others = [
        name for name in _all_rules(config) if name.partition(":")[0] not in (*FAMILIES, COLUMNS) and name not in wanted
    ]
    found += (
        [_without_columns(config, [n for n in _family(config, COLUMNS) if n not in wanted])]
        if config.quality.columns
        else []
    )
    for name in (*others, *(n for n in OTHER_REASONS if n not in _FIXED and n not in wanted)):
        found += _off(config, name)
    if "exact_duplicate" in wanted and not config.dedup.exact:
        found.append("dedup.exact=true")
    for name, off in (("fuzzy_duplicate", config.dedup.fuzzy is None), ("language", config.language.keep is None)):
        if name in wanted and off:
            raise ConfigError(f"--only {name}: the run's recipe has it off, so there is nothing stored to decide it by")
    return found


def _set_key(config: Config, name: str) -> str:
    """How `--set` names an entry of `references`: by its name, or by its number where the name has a dot."""
    number = next(i for i, r in enumerate(config.references) if r.name == name)
    return f"references.{number if '.' in name else name}"


def _cuts(config: Config, entry: str) -> bool:
    """True if an entry of `references`, by its name or number, is cut out of documents."""
    found = next((r for r in config.references if r.name == entry), None)
    return (found or config.references[int(entry)]).on_match == "cut"


def _family(config: Config, name: str) -> dict[str, Rule]:
    return {n: rule for n, rule in _all_rules(config).items() if n.partition(":")[0] == name}


def _published(config: Config, name: str) -> float | None:
    published = rules(Quality.model_validate(dict.fromkeys(FAMILIES, True)))
    return next(rule.limit for rule in published if rule.name == name)


def _fixed_references(config: Config) -> bool:
    on = bool(config.dedup.exact) or config.dedup.fuzzy is not None
    return on and any(r.action == "dedup_against" for r in config.references)


def plain(config: Config) -> dict[str, Any]:
    """A recipe as data that `parse` takes."""
    data: dict[str, Any] = json.loads(config.model_dump_json(by_alias=True))
    return data


def _changed(old: Config, new: Config) -> dict[str, Any]:
    """Key → new value, where two recipes differ; a family that is switched on or off is one key."""
    found = {}
    before, after = plain(old), plain(new)
    for number, reference in enumerate(before["references"]):  # by name, as --set takes them, not by number
        if after["references"][number] != reference:
            for key, (_, value) in differences(reference, after["references"][number]).items():
                found[f"{_set_key(old, reference['name'])}.{key}"] = value
    before["references"] = after["references"] = []
    if before["quality"][COLUMNS] != after["quality"][COLUMNS]:
        found[f"quality.{COLUMNS}"] = after["quality"][COLUMNS]
    before["quality"][COLUMNS] = after["quality"][COLUMNS] = {}
    found |= _changed_judges(before["quality"].pop(JUDGES), after["quality"].pop(JUDGES))
    for name in old.quality.own.keys() | new.quality.own.keys():
        was, now = (data["quality"].pop(name, None) for data in (before, after))
        if was != now:
            found[f"quality.{name}"] = now
    for key, (_, value) in differences(before, after).items():
        if isinstance(value, dict) and key.startswith("quality."):
            value = getattr(new.quality, key.removeprefix("quality.")).model_dump(mode="json", exclude_defaults=True)
            value = value or True
        found[key] = value
    return found


def _changed_judges(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Key → new value: of a judge that both have the keys that differ, else the judge as a whole."""
    found = {}
    for name in before.keys() | after.keys():
        was, now = before.get(name), after.get(name)
        if was is None or now is None:
            found[f"quality.{JUDGES}.{name}"] = now
            continue
        found |= {f"quality.{JUDGES}.{name}.{key}": now[key] for key in now if now[key] != was[key]}
    return found


def _answered(key: str, value: Any) -> bool:
    """Whether stored scores tell what a changed key of a judge does: bounds do, a share of all documents and a model do not."""
    last = key.rpartition(".")[2]
    return key.count(".") == 3 and (
        last in ("min", "max", "unscored", "bands") or (last == "top_share" and value is None)
    )


def _check(old: Config, new: Config) -> None:
    """Raises: ConfigError: a key that differs changes what is stored, not only what is decided."""
    for key, value in _changed(old, new).items():
        top, _, rest = key.partition(".")
        if key.startswith(f"quality.{JUDGES}.") and not _answered(key, value):
            raise ConfigError(
                f"{key}: what is stored does not tell what that would change",
                "of a judge `min`, `max` and `unscored` can be moved, and `top_share` taken away; for the rest run the recipe",
            )
        if top == "quality" and key != "quality.gopher_quality.stop_words":
            section = new.quality.gopher_quality
            if (
                key == "quality.gopher_quality"
                and section is not None
                and section.stop_words != type(section).model_fields["stop_words"].default
            ):
                key = "quality.gopher_quality.stop_words"
            else:
                continue
        if key in ("language.keep", "language.min_score", "min_tokens", "dedup.exact"):
            if key == "language.keep" and value is not None and old.language.model is None:
                raise ConfigError("language.keep: the run has no language.model, so no language is stored")
            continue
        if key == "dedup.fuzzy" and value is None:
            continue
        if top == "references" and rest.endswith(".max_coverage"):
            if _cuts(old, rest.removesuffix(".max_coverage")):
                raise ConfigError(
                    f"{key}: this set is cut out of documents (on_match: cut), and another limit leaves other texts",
                    "run the recipe with it: what is read, scored and searched stays",
                )
            continue
        if top == "references" and rest.endswith(".on_match") and value != "cut" and not _cuts(old, rest[:-9]):
            continue
        raise ConfigError(
            f"{key}: what is stored does not tell what that would change",
            "stored are scores, languages, coverage, token counts and clusters: ask about quality.*, language.keep, "
            "language.min_score, min_tokens, references.NAME.max_coverage, dedup.exact, dedup.fuzzy=null; for anything "
            "else run the recipe, which reuses what stays",
        )


def as_yaml(config: Config, changed: Mapping[str, Any]) -> str:
    """The changed keys as a recipe has them; an entry of `references` by its name."""
    tree: dict[str, Any] = {}
    references: dict[str, dict[str, Any]] = {}
    for key, value in changed.items():
        if key.startswith("references."):
            _, entry, last = key.split(".")
            name = next((r.name for r in config.references if r.name == entry), None)
            references.setdefault(name or config.references[int(entry)].name, {})[last] = value
            continue
        whole = ["quality", key.removeprefix("quality.")]  # the name of a class of the user's may have dots
        *parents, last = whole if ":" in key else key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    lines = _yaml_lines(tree)
    if references:
        lines.append("references:  # beside what these entries have")
        lines += [
            f"  - {{name: {_scalar(name)}, " + ", ".join(f"{k}: {_scalar(v)}" for k, v in own.items()) + "}"
            for name, own in references.items()
        ]
    return "\n".join(lines)


def _yaml_lines(tree: Mapping[str, Any], indent: int = 0) -> list[str]:
    lines = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            lines += [f"{' ' * indent}{_key(key)}:", *_yaml_lines(value, indent + 2)]
        else:
            lines.append(f"{' ' * indent}{_key(key)}: {_scalar(value)}")
    return lines


def _key(name: str) -> str:
    """A column's name may need its quotes."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else _scalar(name)


def _scalar(value: Any) -> str:
    """A value that means the same in JSON and in YAML."""
    return json.dumps(value, ensure_ascii=False)
