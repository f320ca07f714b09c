"""Click and conversion models under differential privacy: label DP by unit, DP-SGD, and the Hybrid of both.

examples        what a model learns from or predicts for: some rows of an encoded log, by unit
targets         what a phase learns towards, and the loss
settings        how a phase learns, and the defaults with their reasons
methods         READ FIRST: the ways to train, as values; each makes a plan
label_share     how much of a budget labels get before DP-SGD, from public quantities
method_choice   flips or a statistic: which way of label DP is best, from public quantities
plan            what a training will do and promise, from public quantities alone
steps           trains as a plan says, step by step: `Run`
recalibration   predictions corrected after DP-SGD, by one noisy statistic
classifier      private models of frames, as estimators of scikit-learn: frame_model, frame_examples, row_scorer
estimator       the same for encoded examples
explanation     what a model, a training or a log promises, in plain words: the page of `tacit explain`
promise_words   the words of a training that promises nothing
config          a training as frozen values; config_file: the same from one TOML file;
                config_examples: complete files, one per method
models/         two towers each, with a truncated form; saving, ONNX
labels/         how labels become noisy targets, once
sgd/            sampling, clipping, noise, optimizers, and the checks of a private run
statistic/      one noisy statistic instead of noisy labels
evaluation/     measures with intervals
job/            a training from configuration to saved model: plan, pay, run, place, commit
audit           DP-SGD and the recalibration as they are really run, against their claims
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.train.classifier import Classifier, Regressor
    from tacit.train.config_file import load_config
    from tacit.train.estimator import Estimator
    from tacit.train.evaluation.measures import Outcomes, auc, auc_value, calibration_ratio, log_loss
    from tacit.train.evaluation.report import Evaluation, evaluate
    from tacit.train.examples import Examples, Sizes
    from tacit.train.explanation import Explanation, explain_log, explain_model, explain_training
    from tacit.train.frame_model import RolesGuessed, TuningSpends
    from tacit.train.job.model_evaluation import FlipSettings, ModelEvaluation, ModelsOnRows, evaluate_model
    from tacit.train.job.payment import TrainingLedger, release_payment
    from tacit.train.job.planned_training import plan_training
    from tacit.train.job.run import run_training
    from tacit.train.job.training_job import TrainingOutcome
    from tacit.train.labels.mechanism import Bins
    from tacit.train.labels.randomizers import FlipLabels, FlipTowardsPrior, LaplaceWithPrior
    from tacit.train.labels.values import FlipEnds, best_bins
    from tacit.train.labels.windows import ReportingWindows
    from tacit.train.methods import DpSgd, Hybrid, LabelDp, Plain, StatisticMethod
    from tacit.train.models.architectures import Din, Fnn, Mlp
    from tacit.train.models.device_export import export_device
    from tacit.train.models.factorization_machine import FactorizationMachine, LogisticRegression
    from tacit.train.models.model import Part
    from tacit.train.models.onnx_export import export_onnx
    from tacit.train.models.saving import SavedModel
    from tacit.train.plan import Plan
    from tacit.train.settings import Learning, PrivateLearning
    from tacit.train.sgd.optimizers import Adam, RmsProp, Sgd, Yogi
    from tacit.train.statistic.method import NoisyStatistic
    from tacit.train.steps import Run
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "classifier": "Classifier Regressor",
            "config_file": "load_config",
            "estimator": "Estimator",
            "evaluation.measures": "Outcomes auc auc_value calibration_ratio log_loss",
            "evaluation.report": "Evaluation evaluate",
            "examples": "Examples Sizes",
            "explanation": "Explanation explain_log explain_model explain_training",
            "frame_model": "RolesGuessed TuningSpends",
            "job.model_evaluation": "FlipSettings ModelEvaluation ModelsOnRows evaluate_model",
            "job.payment": "TrainingLedger release_payment",
            "job.planned_training": "plan_training",
            "job.run": "run_training",
            "job.training_job": "TrainingOutcome",
            "labels.mechanism": "Bins",
            "labels.randomizers": "FlipLabels FlipTowardsPrior LaplaceWithPrior",
            "labels.values": "FlipEnds best_bins",
            "labels.windows": "ReportingWindows",
            "methods": "DpSgd Hybrid LabelDp Plain StatisticMethod",
            "models.architectures": "Din Fnn Mlp",
            "models.device_export": "export_device",
            "models.factorization_machine": "FactorizationMachine LogisticRegression",
            "models.model": "Part",
            "models.onnx_export": "export_onnx",
            "models.saving": "SavedModel",
            "plan": "Plan",
            "settings": "Learning PrivateLearning",
            "sgd.optimizers": "Adam RmsProp Sgd Yogi",
            "statistic.method": "NoisyStatistic",
            "steps": "Run",
        },
    )

__all__ = [
    "Adam", "Bins", "Classifier", "Din", "DpSgd", "Estimator", "Evaluation", "Examples", "Explanation",
    "FactorizationMachine", "FlipEnds", "FlipLabels", "FlipSettings", "FlipTowardsPrior", "Fnn", "Hybrid",
    "LabelDp", "LaplaceWithPrior", "Learning", "LogisticRegression", "Mlp", "ModelEvaluation", "ModelsOnRows",
    "NoisyStatistic", "Outcomes", "Part", "Plain", "Plan", "PrivateLearning", "Regressor", "ReportingWindows",
    "RmsProp", "RolesGuessed", "Run", "SavedModel", "Sgd", "Sizes", "StatisticMethod", "TrainingLedger",
    "TrainingOutcome", "TuningSpends", "Yogi", "auc", "auc_value", "best_bins", "calibration_ratio",
    "evaluate", "evaluate_model", "explain_log", "explain_model", "explain_training", "export_device",
    "export_onnx", "load_config", "log_loss", "plan_training", "release_payment", "run_training",
]  # fmt: skip
