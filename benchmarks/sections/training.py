"""The demo, the noise model in training, the speed of training, and few images."""

from typing import Any

from common import Section, describe, load, seconds, shown
from few import TRIED
from graphclean.bench.markdown import markdown_table
from paper_runs import mean_over_seeds, over_seeds


def demo_section(result: dict[str, Any]) -> Section:
    rows, verdict_rows = [], []
    for run in result["runs"]:
        ce, ngc, verdicts = run["ce"], run["ngc"], run["verdicts"]
        rows.append(
            [
                str(run["seed"]),
                *(f"{100 * who['accuracy']:.1f} %" for who in (ce, ngc)),
                *(f"{who['auroc']:.3f}" for who in (ce, ngc)),
                *(f"{ngc[name]:.3f}" for name in ("f", "f_best")),
            ]
        )
        scores = (f"{verdicts[name]:.3f}" for name in ("label_accuracy", "issue_f1", "ood_auroc"))
        times = (f"{value:.1f}" for value in (ce["seconds"], ngc["seconds"], run["seconds"]))
        verdict_rows.append([str(run["seed"]), *scores, *times])
    header = ["seed", "accuracy: CE", "NGC", "AUROC: CE", "NGC", "F, auto ζ", "F, best ζ"]
    of_verdicts = ["seed", "label accuracy", "any-issue F1", "OOD AUROC", "seconds: CE", "NGC", "all"]
    chart = f"""{shown("bench-demo", "Test accuracy and AUROC of OOD digits for five seeds: NGC is ahead of cross-entropy on each")}
`graphclean demo` on seeds on which no setting was chosen: the digits 0 to 7 have symmetric noise (50 %), and 8s and 9s are
OOD."""
    numbers = f"""1,200 digits to train on, 597 to test. CE is plain cross-entropy with the same network and crops; its OOD score is 1 − its
largest softmax probability.

{markdown_table(header, rows)}

NGC's verdicts on the training digits, and seconds:

{markdown_table(of_verdicts, verdict_rows)}

{describe(result)}
"""
    return Section("The demo", chart, numbers)


def mistakes_section(result: dict[str, Any]) -> Section:
    on = {
        ("digits", "asym"): "ten digits, 40 % of five flipped to another",
        ("digits", "asym, OOD"): "the same of eight, and 8s and 9s as OOD",
        ("digits", "sym, OOD"): "eight digits, symmetric noise (50 %), and 8s and 9s as OOD",
        ("cifar", "asym"): "CIFAR-10 at 16 px, 40 % of five classes flipped to another",
        ("cifar", "sym"): "symmetric noise (50 %)",
        ("cifar", "clean"): "all labels right",
    }
    cifar = load("mistakes-cifar")
    recorded = {"digits": result["runs"], "cifar": cifar["runs"] if cifar is not None else []}
    rows = []
    for (images, case), name in on.items():
        for class_dependent_noise in (False, True):
            runs = [
                run
                for run in recorded[images]
                if (run["case"], run["class_dependent_noise"]) == (case, class_dependent_noise)
            ]
            cleaning = [run["cleaning"] for run in runs]
            with_ood = "OOD" in case
            rows.append(
                [
                    "" if class_dependent_noise else name,
                    ""
                    if class_dependent_noise
                    else mean_over_seeds([run["given_right"] for run in runs], 1, 100),
                    "on" if class_dependent_noise else "off",
                    over_seeds([part["label_accuracy"] for part in cleaning], 1, 100),
                    mean_over_seeds([part["selected"] for part in cleaning], 0),
                    mean_over_seeds([part["wrong_known"] for part in cleaning], 0),
                    mean_over_seeds([part["ood"] for part in cleaning], 0) if with_ood else "",
                    over_seeds([run["accuracy"] for run in runs], 1, 100),
                    over_seeds([run["auroc"] for run in runs], 3) if with_ood else "",
                ]
            )
    header = [
        "",
        "given labels right, %",
        "`graph.class_dependent_noise`",
        "label accuracy, %",
        "selected",
        "wrong among them",
        "OOD",
    ]
    header += ["accuracy, %", "AUROC"]
    chart = f"""{shown("bench-class-dependent", "Label accuracy with the setting on and off: higher under flipped labels, equal under symmetric noise")}
[`graph.class_dependent_noise`](how-it-works.md#class-dependent-noise) corrects labels that are flipped from one class to
another. Under symmetric noise it changes nothing."""
    numbers = f"""Labels and selection at the end of training, and new images; mean ± standard deviation over seeds, their number in brackets.
Digits: the demo's preset, 1,200 to train on. CIFAR-10: 10,000 images of its training set and 4,000 others of it to score, a
small network, 15 epochs.

{markdown_table(header, rows)}

{describe(result)}
"""
    return Section("Class-dependent noise", chart, numbers)


def engine_section(result: dict[str, Any]) -> Section:
    views, mixed = result["step"]
    rows = [
        ["whole epoch", seconds(result["epoch"])],
        ["cleaning", seconds(result["cleaning"])],
        ["– embedding", seconds(result["embedding"])],
        ["– graph step", seconds(result["graph"])],
        ["augmentation", seconds(result["augmentation"])],
        ["network: forward, losses, backward, update", seconds(result["network"])],
        ["images per second through the network", f"{result['filled_images_per_second']:,.0f}"],
        ["– without those that pad static shapes", f"{result['images_per_second']:,.0f}"],
        [
            f"– batches of {views:,} and {mixed:,} alone, without losses and mixup",
            f"{result['network_alone_images_per_second']:,.0f}",
        ],
        ["first step, with nothing compiled yet", seconds(result["first_step"])],
        ["compiling, in total", seconds(result["compiling"])],
        ["peak of GPU memory", f"{result['peak_gib']:.1f} GiB"],
    ]
    growth = shown(
        "growth-training",
        "Seconds of an epoch, and of cleaning in it, by the number of samples: both grow almost linearly",
    )
    chart = f"""{shown("bench-epoch", "Seconds of an epoch by part: the network takes most of it")}
An epoch of NGC on {result["samples"]:,} images takes {seconds(result["epoch"])} on an {result["machine"]["gpu"]}, {seconds(result["cleaning"])} of it for cleaning. Both grow
almost linearly with the set:

{growth}"""
    numbers = f"""Preset `{result["preset"]}` on `{result["cell"]}`, N = {result["samples"]:,}, batch 512, compiled, bf16. Medians over
epochs after {result["trained"]} of training, with {result["selected"]:,} samples selected.

{markdown_table(["", ""], rows)}

{describe(result, gpu=True)}

{growth_section(load("engine-growth-cuda"))}
"""
    return Section("Training on a GPU", chart, numbers)


def few_section(result: dict[str, Any]) -> Section:
    rows = []
    for preset, changes in TRIED:
        runs = [run for run in result["runs"] if (run["preset"], run["changes"]) == (preset, changes)]
        rows.append(
            [
                " ".join([f"`{preset}`", *(f"`--set {change}`" for change in changes)]),
                over_seeds([run["scores"]["accuracy"] for run in runs], 1, 100),
                over_seeds([run["scores"]["auroc"] for run in runs], 3),
                over_seeds([run["scores"]["f_auto"] for run in runs], 3),
                over_seeds([run["cleaning"]["label_accuracy"] for run in runs], 1, 100),
                mean_over_seeds([run["seconds"] for run in runs], 0),
            ]
        )
    header = ["", "accuracy, %", "AUROC", "F, auto ζ", "label accuracy, %", "seconds"]
    numbers = f"""The presets that train a whole network from scratch, on {result["count"]:,} images of the development split of
`{result["cell"]}` (symmetric noise (50 %), two of eleven images OOD), scored on its held-out part. "–": not run.

{markdown_table(header, rows)}

{describe(result, gpu=True)}
"""
    return Section("Few small images", "", numbers)


def growth_section(result: dict[str, Any] | None) -> str:
    if result is None:
        return "Not run."
    rows = [
        [f"{row['samples']:,}", f"{row['selected']:,}", seconds(row["epoch"]), seconds(row["cleaning"])]
        for row in result["growth"]
    ]
    return f"""The network after {result["trained"]} epochs, on samples taken from the same cell with replacement and a little noise, so that no two
are equal:

{markdown_table(["N", "selected", "epoch", "cleaning (part of it)"], rows)}

{describe(result, gpu=True)}"""
