"""Class, or none of them, for photos: python serve.py model.onnx PHOTO … (numpy, onnxruntime, pillow)."""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession(sys.argv[1])
about = session.get_modelmeta().custom_metadata_map
classes = json.loads(about["classes"])
_, channels, height, width = session.get_inputs()[0].shape
for path in sys.argv[2:]:
    photo = ImageOps.exif_transpose(Image.open(path)).convert("RGBA")  # upright
    photo = Image.alpha_composite(Image.new("RGBA", photo.size, "white"), photo)  # on white
    if about.get("fit") == "crop":  # to the center square
        side = min(photo.size)
        left, top = ((length - side) // 2 for length in photo.size)
        photo = photo.crop((left, top, left + side, top + side))
    photo = photo.convert("RGB" if channels == 3 else "L").resize((width, height), Image.Resampling.BICUBIC)
    batch = np.asarray(photo).reshape(1, height, width, channels).transpose(0, 3, 1, 2)
    (probabilities,), (ood_score,), (rejected,) = session.run(None, {"images": batch})
    print(path, "none" if rejected else classes[probabilities.argmax()], probabilities.max(), ood_score)
