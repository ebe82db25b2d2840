"""Fill the masks of a sentence with a trained model.

    python examples/fill_mask.py runs/demo/checkpoints "The function returns a <mask> of the object."

Hardware: any CPU; a second or two, most of it loading.
"""

import argparse

from roberta_plugin.models.hub_interface import RobertaHub


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="folder with a checkpoint, for instance runs/demo/checkpoints")
    parser.add_argument("text", help="a sentence with one or several <mask>")
    parser.add_argument("--topk", type=int, default=5, help="answers for each mask (default: 5)")
    parser.add_argument("--checkpoint-file", help="default: checkpoint_best.pt, checkpoint_last.pt or model.pt")
    parser.add_argument("--data", help="folder with dict.txt, if not the training data")
    parser.add_argument("--tokenizer", help="folder with the tokenizer's files, if not that of dict.txt")
    arguments = parser.parse_args()

    try:
        hub = RobertaHub.from_pretrained(
            arguments.folder, arguments.checkpoint_file, arguments.data, arguments.tokenizer
        )
        answers = hub.fill_mask(arguments.text, topk=arguments.topk)
    except (ValueError, OSError) as error:
        raise SystemExit(f"fill_mask: {error}") from None
    for number, fillings in enumerate([answers] if arguments.text.count("<mask>") == 1 else answers, start=1):
        print(f"mask {number}")
        for filling in fillings:
            print(f"  {filling.probability:6.1%}  {filling.token!r:<20} {filling.text}")


if __name__ == "__main__":
    main()
