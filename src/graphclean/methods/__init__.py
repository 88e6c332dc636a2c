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
    "sampled-labels": "graphclean.methods.sampled_labels:SampledLabels",
    "decoupling": "graphclean.methods.decoupling:Decoupling",
    "co-teaching": "graphclean.methods.co_teaching:CoTeaching",
    "co-teaching-plus": "graphclean.methods.co_teaching:CoTeachingPlus",
    "incv": "graphclean.methods.incv:INCV",
    "mentornet-pd": "graphclean.methods.mentornet:MentorNetPD",
    "mentornet-dd": "graphclean.methods.mentornet_dd:MentorNetDD",
    "elr": "graphclean.methods.elr:ELR",
    "rog": "graphclean.methods.rog:RoG",
    "ilon": "graphclean.methods.ilon:ILON",
    "rot": "graphclean.methods.rot:Rot",
    "rot-plus": "graphclean.methods.rot:RotPlus",
    "ssd": "graphclean.methods.ssd:SSD",
    "ssd-plus": "graphclean.methods.ssd:SSDPlus",
    "elr-plus": "graphclean.methods.elr_plus:ELRPlus",
    "dividemix": "graphclean.methods.dividemix:DivideMix",
    "dividemix-1": "graphclean.methods.dividemix:DivideMix1",
    "unicon": "graphclean.methods.unicon:Unicon",
    "c2d": "graphclean.methods.c2d:C2D",
    "pencil": "graphclean.methods.pencil:Pencil",
    "m-correction": "graphclean.methods.m_correction:MCorrection",
    "d2l": "graphclean.methods.d2l:D2L",
    "mlnt": "graphclean.methods.mlnt:MLNT",
    "protomix": "graphclean.methods.protomix:ProtoMix",
    "sop-plus": "graphclean.methods.sop_plus:SOPPlus",
    "ssr": "graphclean.methods.ssr:SSR",
    "ssr-plus": "graphclean.methods.ssr:SSRPlus",
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
