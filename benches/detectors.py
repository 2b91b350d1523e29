"""Small detectors of torchvision: boxes around what an image shows. How many there are, the image decides.

Their heads start with wide weights, so that scores lie apart: among scores that are all but equal, rounding would choose.
"""

from collections import OrderedDict
from unittest import mock

import torch
import torch.nn as nn
import torchvision
from torchvision.models.detection import FasterRCNN, RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.models.detection.ssd import SSD
from torchvision.ops import MultiScaleRoIAlign

CLASSES = 4


class Pyramid(nn.Module):
    """Two maps of features, the second half as wide and high as the first."""

    out_channels = 8

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x):
        fine = self.stem(x)
        return OrderedDict([("0", fine), ("1", self.down(fine))])


def nms_of_classes(boxes, scores, classes, threshold):
    """torchvision's batched_nms, but for its first question, whether there is any box."""
    offsets = classes.to(boxes) * (boxes.max() + torch.tensor(1).to(boxes))
    return torchvision.ops.nms(boxes + offsets[:, None], scores, threshold)


def without_questions(export):
    """An export in which torchvision asks nothing that only the image can tell."""

    def patched(*args, **kwargs):
        with mock.patch.object(torchvision.ops.boxes, "batched_nms", nms_of_classes):
            return export(*args, **kwargs)

    return patched


class OfOneImage(nn.Module):
    """A detector, which takes a list of images, of one image."""

    def __init__(self, detector: nn.Module):
        super().__init__()
        for name, part in detector.named_modules():
            if isinstance(part, (nn.Conv2d, nn.Linear)):
                nn.init.normal_(part.weight, 0, 1.5 * part.weight[0].numel() ** -0.5)
                nn.init.normal_(part.bias, 0, 0.1)
        self.detector = detector

    def forward(self, image):
        return self.detector([image])


def anchors() -> AnchorGenerator:
    return AnchorGenerator(sizes=((12,), (24,)), aspect_ratios=((0.5, 1.0, 2.0),) * 2)


def ssd() -> nn.Module:
    boxes = DefaultBoxGenerator([[2], [2]], scales=[0.15, 0.35, 0.6])
    counts = dict(score_thresh=0.3, topk_candidates=40, detections_per_img=20)
    backbone = Pyramid()
    backbone.out_channels = [8, 8]
    return OfOneImage(SSD(backbone, boxes, (64, 64), CLASSES, **counts))


def retinanet() -> nn.Module:
    sizes = dict(min_size=64, max_size=64, score_thresh=0.5, topk_candidates=60, detections_per_img=20)
    return OfOneImage(RetinaNet(Pyramid(), CLASSES, anchor_generator=anchors(), **sizes))


def faster_rcnn() -> nn.Module:
    sizes = dict(min_size=64, max_size=64, rpn_pre_nms_top_n_test=40, rpn_post_nms_top_n_test=15)
    sizes |= dict(box_score_thresh=0.3, box_detections_per_img=10)
    pool = MultiScaleRoIAlign(featmap_names=["0", "1"], output_size=3, sampling_ratio=2)
    head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 3 * 3, 32), nn.ReLU())
    parts = dict(box_roi_pool=pool, box_head=head, box_predictor=FastRCNNPredictor(32, CLASSES))
    return OfOneImage(FasterRCNN(Pyramid(), rpn_anchor_generator=anchors(), **parts, **sizes))
