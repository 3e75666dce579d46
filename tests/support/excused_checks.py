"""scikit-learn's checks that privacy rules out, each with its reason."""

WEIGHTS_ABOVE = "it gives weights above max_weight, the public bound without which one record moves the model without bound"
TWO_RECORDS = "it takes weight 2 for two records, but the number of records is public, and what is protected is one of them"
ALL_ZERO = "whether all weights are zero depends on the records, so an error would tell"

EXCUSED = {
    "check_sample_weights_list": WEIGHTS_ABOVE,
    "check_sample_weights_not_overwritten": WEIGHTS_ABOVE,
    "check_sample_weight_equivalence_on_dense_data": TWO_RECORDS,
    "check_sample_weight_equivalence_on_sparse_data": TWO_RECORDS,
    "check_all_zero_sample_weights_error": ALL_ZERO,
}
SEEDED = {"seed_noise": True, "random_state": 0}
