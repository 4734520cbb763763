"""From rows to messages: columns checked, batches encoded by Arrow, requests sent and awaited."""
