"""Methods by name; each module is loaded on demand."""

from dataclasses import asdict, replace

from ..config import Config, MethodChoice
from ..config.overrides import read_settings
from ..config.plugins import Plugins
from ..training.method import Method

OWN_METHODS = {
    "ngc": "graphclean.methods.ngc:NGC",
    "cross-entropy": "graphclean.methods.cross_entropy:CrossEntropy",
    "mixup": "graphclean.methods.mixup:Mixup",
    "f-correction": "graphclean.methods.f_correction:FCorrection",
    "decoupling": "graphclean.methods.decoupling:Decoupling",
    "co-teaching": "graphclean.methods.co_teaching:CoTeaching",
    "co-teaching-plus": "graphclean.methods.co_teaching:CoTeachingPlus",
    "mentornet-pd": "graphclean.methods.mentornet:MentorNetPD",
    "mentornet-dd": "graphclean.methods.mentornet_dd:MentorNetDD",
    "incv": "graphclean.methods.incv:INCV",
    "d2l": "graphclean.methods.d2l:D2L",
    "pencil": "graphclean.methods.pencil:Pencil",
    "m-correction": "graphclean.methods.m_correction:MCorrection",
    "mlnt": "graphclean.methods.mlnt:MLNT",
    "elr": "graphclean.methods.elr:ELR",
    "elr-plus": "graphclean.methods.elr_plus:ELRPlus",
    "sop-plus": "graphclean.methods.sop_plus:SOPPlus",
    "dividemix": "graphclean.methods.dividemix:DivideMix",
    "dividemix-1": "graphclean.methods.dividemix:DivideMix1",
    "c2d": "graphclean.methods.c2d:C2D",
    "unicon": "graphclean.methods.unicon:Unicon",
    "protomix": "graphclean.methods.protomix:ProtoMix",
    "ssr": "graphclean.methods.ssr:SSR",
    "ssr-plus": "graphclean.methods.ssr:SSRPlus",
    "rog": "graphclean.methods.rog:RoG",
    "ilon": "graphclean.methods.ilon:ILON",
    "sampled-labels": "graphclean.methods.sampled_labels:SampledLabels",
    "rot": "graphclean.methods.rot:Rot",
    "rot-plus": "graphclean.methods.rot:RotPlus",
    "ssd": "graphclean.methods.ssd:SSD",
    "ssd-plus": "graphclean.methods.ssd:SSDPlus",
}
METHODS = Plugins("graphclean.methods", OWN_METHODS, "method.name={name}: no such method")


def method_names() -> list[str]:
    """The names of all methods: built-in ones, then those of other packages."""
    return METHODS.names()


def load_method(name: str) -> type[Method]:
    """The class of a method."""
    loaded: type[Method] = METHODS.load(name, Method)
    return loaded


def build_method(config: Config) -> Method:
    """The method that the configuration names, with its settings checked."""
    made = load_method(config.method.name)
    return made(read_settings(made.Settings, config.method.settings, "method"), config.graph)


def complete_settings(config: Config) -> Config:
    """The configuration with every setting of its method, checked; settings of another method are refused."""
    made = build_method(config)
    return replace(config, method=MethodChoice(config.method.name, asdict(made.settings)))
