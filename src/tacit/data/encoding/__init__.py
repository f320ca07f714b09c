"""From typed batches to whole numbers: tokens, then bins or vocabularies, saved with the model."""
