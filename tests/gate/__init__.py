"""Answers of models that are wrong or obey planted text, through the whole pipeline and the shipped policy."""
